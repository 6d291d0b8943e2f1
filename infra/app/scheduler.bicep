// The Durable Task Scheduler with the task hub of code workflows, and who may use it.
param name string
param location string
param tags object
@allowed(['Consumption', 'Dedicated'])
param sku string
@description('Addresses that may call it. An empty list would refuse everybody.')
@minLength(1)
param ipAllowlist string[]
@description('Name of the task hub: hubName in host.json.')
param hubName string
param appPrincipalId string
@description('A person or group with the same rights. Empty: nobody.')
param principalId string
@allowed(['User', 'Group', 'ServicePrincipal'])
param principalType string

var contributor = '0ad04412-c4d5-4796-b79c-f76d14c8d402' // Durable Task Data Contributor

resource scheduler 'Microsoft.DurableTask/schedulers@2025-11-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    ipAllowlist: ipAllowlist
    sku: {
      name: sku
    }
  }
}

resource hub 'Microsoft.DurableTask/schedulers/taskHubs@2025-11-01' = {
  parent: scheduler
  name: hubName
}

resource appRuns 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: scheduler
  name: guid(scheduler.id, appPrincipalId, contributor)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', contributor)
  }
}

resource personLooks 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(principalId)) {
  scope: scheduler
  name: guid(scheduler.id, principalId, contributor)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', contributor)
  }
}

output endpoint string = scheduler.properties.endpoint
output hub string = hub.name
