// What one principal may do with the data, and nothing beyond: no owner, no contributor of a
// resource, no role on the resource group.
param principalId string
@allowed(['User', 'Group', 'ServicePrincipal'])
param principalType string
param hostStorageName string
@description('Whether the host storage also holds the task hub of Durable Functions.')
param hubInStorage bool
param payloadStorageName string
param payloadsContainer string
param busName string
param queueNames string[]
param cosmosName string
param databaseName string
param vaultName string
param insightsName string

var roles = {
  blobOwner: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b' // Storage Blob Data Owner: the host's leases
  queueContributor: '974c5e8b-45b9-4653-ba55-5f855dd0fb88' // Storage Queue Data Contributor
  tableContributor: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3' // Storage Table Data Contributor
  blobContributor: 'ba92f5b4-2d11-453d-a403-e96b0029c9fe' // Storage Blob Data Contributor
  sender: '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39' // Azure Service Bus Data Sender
  receiver: '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0' // Azure Service Bus Data Receiver
  secrets: '4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User
  metrics: '3913510d-42f4-4e42-8a64-420c390055eb' // Monitoring Metrics Publisher
}
var cosmosContributor = '00000000-0000-0000-0000-000000000002' // built-in, data plane

resource hostStorage 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: hostStorageName
}

resource payloadStorage 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: payloadStorageName

  resource blobs 'blobServices' existing = {
    name: 'default'

    resource payloads 'containers' existing = {
      name: payloadsContainer
    }
  }
}

resource bus 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: busName
}

resource queues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' existing = [
  for name in queueNames: {
    parent: bus
    name: name
  }
]

resource cosmos 'Microsoft.DocumentDB/databaseAccounts@2025-10-15' existing = {
  name: cosmosName
}

resource vault 'Microsoft.KeyVault/vaults@2025-05-01' existing = {
  name: vaultName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource hosts 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: hostStorage
  name: guid(hostStorage.id, principalId, roles.blobOwner)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobOwner)
  }
}

// A task hub in Azure Storage: control and work-item queues, history tables (its blobs are covered).
resource hubQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hubInStorage) {
  scope: hostStorage
  name: guid(hostStorage.id, principalId, roles.queueContributor)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles.queueContributor
    )
  }
}

resource hubTables 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hubInStorage) {
  scope: hostStorage
  name: guid(hostStorage.id, principalId, roles.tableContributor)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles.tableContributor
    )
  }
}

resource stores 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: payloadStorage::blobs::payloads
  name: guid(payloadStorage::blobs::payloads.id, principalId, roles.blobContributor)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles.blobContributor
    )
  }
}

resource sends 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in queueNames: {
    scope: queues[index]
    name: guid(queues[index].id, principalId, roles.sender)
    properties: {
      principalId: principalId
      principalType: principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.sender)
    }
  }
]

resource receives 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in queueNames: {
    scope: queues[index]
    name: guid(queues[index].id, principalId, roles.receiver)
    properties: {
      principalId: principalId
      principalType: principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.receiver)
    }
  }
]

resource documents 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2025-10-15' = {
  parent: cosmos
  name: guid(cosmos.id, databaseName, principalId, cosmosContributor)
  properties: {
    principalId: principalId
    roleDefinitionId: '${cosmos.id}/sqlRoleDefinitions/${cosmosContributor}'
    scope: '${cosmos.id}/dbs/${databaseName}'
  }
}

resource reads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: vault
  name: guid(vault.id, principalId, roles.secrets)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.secrets)
  }
}

resource reports 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: insights
  name: guid(insights.id, principalId, roles.metrics)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.metrics)
  }
}
