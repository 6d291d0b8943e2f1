// One Weft environment: its resource group, and in it everything that the functions need. Plain
// resources only, so that it compiles without a network; nothing in it holds or hands out a key.
targetScope = 'subscription'

@description('Name of the environment; part of every name and of the tag azd-env-name.')
@minLength(1)
@maxLength(32)
param environmentName string

@description('Region of everything.')
@minLength(1)
param location string

@description('Object id of a person or group that gets the same data roles as the app. Empty: nobody.')
param principalId string = ''

@description('What principalId is.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param principalType string = 'User'

@description('Virtual network, private endpoints and DNS; no service is then reachable from outside. Needs the Premium Service Bus.')
param vnetEnabled bool = false

@description('Whether the HTTP API can be reached from outside the network. Without a network it has to be.')
param apiPublicAccess bool = true

@description('Multi-zone: Cosmos DB, the function plan and storage (Service Bus Premium is by itself).')
param zoneRedundant bool = false

@description('Premium is needed for private endpoints.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string = 'Standard'

@description('Messaging units; Premium only.')
@allowed([1, 2, 4, 8, 16])
param serviceBusCapacity int = 1

@description('Serverless or autoscale; fixed when the account is created.')
param cosmosServerless bool = true

@description('Most RU/s of the container executions. Autoscale only.')
@minValue(1000)
param executionsMaxThroughput int = 4000

@description('Most RU/s that the other containers share. Autoscale only.')
@minValue(1000)
param sharedMaxThroughput int = 1000

@description('How far back Cosmos DB can be restored.')
@allowed(['Continuous7Days', 'Continuous30Days'])
param backupTier string = 'Continuous7Days'

@description('Memory of one instance.')
@allowed([512, 2048, 4096])
param instanceMemoryMB int = 2048

@description('Most instances, of all functions together.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('HTTP requests that one instance takes at once.')
@minValue(1)
@maxValue(1000)
param httpConcurrency int = 32

@description('Instances kept warm for the HTTP functions.')
@minValue(0)
param alwaysReadyHttp int = 0

@description('Instances kept warm for the orchestrator.')
@minValue(0)
param alwaysReadyOrchestration int = 0

@description('How running instances are replaced by a new package. RollingUpdate lets them finish.')
@allowed(['Recreate', 'RollingUpdate'])
param siteUpdateStrategy string = 'Recreate'

@description('What the tokens of callers are for. Tokens of version 2.0 name the client id of the app registration (a GUID) as their audience, not its URI.')
param authAudience string = 'api://weft'

@description('Whose tokens are accepted, as JSON (WEFT_AUTH_ISSUERS). Empty: those of this directory for authAudience; all callers are of the tenant `default`, their app roles say what they may.')
param authIssuers string = ''

@description('WEFT_PUBLISH_TARGETS; the app\'s identity needs the sender role there. Empty: none.')
param publishTargets string = ''

@description('WEFT_EGRESS_ALLOW. Empty: http tasks reach public addresses only.')
param egressAllow string = ''

@description('Where Durable Functions keeps code workflows: the host storage, or a Durable Task Scheduler. Fixed while any of them runs.')
@allowed(['storage', 'scheduler'])
param durableBackend string = 'storage'

@description('Of the Durable Task Scheduler: paid by use, or reserved.')
@allowed(['Consumption', 'Dedicated'])
param schedulerSku string = 'Consumption'

@description('Addresses that may call the Durable Task Scheduler; it has no private endpoint here.')
@minLength(1)
param schedulerIpAllowlist string[] = ['0.0.0.0/0']

@description('Further app settings, by name. No secrets: those belong into the vault.')
param extraSettings object = {}

@description('Who gets alerts and budget notices. Empty: alerts are only shown in the portal.')
param alertEmails string[] = []

@description('Monthly budget of the resource group, in the currency of the subscription. 0: none.')
@minValue(0)
param budgetAmount int = 0

@description('First month of the budget, as 2027-01-01; fixed when it is created. Empty: no budget.')
param budgetStart string = ''

@description('Days that logs are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

var abbreviations = loadJsonContent('abbreviations.json')
var token = toLower(uniqueString(subscription().id, environmentName, location))
var ownIssuer = string([
  {
    issuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'
    audience: authAudience
    tenant: 'default'
  }
])
var issuers = empty(authIssuers) ? ownIssuer : authIssuers
var tags = { 'azd-env-name': environmentName, workload: 'weft' }
var storageSku = zoneRedundant ? 'Standard_ZRS' : 'Standard_LRS'
var hubInStorage = durableBackend == 'storage'
var hubInScheduler = durableBackend == 'scheduler'
// Standard namespaces have no private endpoints; the app then reaches the bus over its public address.
var busIsPrivate = vnetEnabled && serviceBusSku == 'Premium'

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: '${abbreviations.resourceGroup}${environmentName}'
  location: location
  tags: tags
}

module identity 'app/identity.bicep' = {
  name: 'identity'
  scope: group
  params: {
    name: '${abbreviations.identity}${token}'
    location: location
    tags: tags
  }
}

module monitoring 'app/monitoring.bicep' = {
  name: 'monitoring'
  scope: group
  params: {
    workspaceName: '${abbreviations.logAnalytics}${token}'
    insightsName: '${abbreviations.applicationInsights}${token}'
    location: location
    tags: tags
    retentionDays: logRetentionDays
  }
}

// Three accounts: what the host owns (package, leases), what tenants sent, and what Event Grid could
// not deliver. One account would give each of the three identities' roles over the other's data.
module hostStorage 'app/storage.bicep' = {
  name: 'storage-host'
  scope: group
  params: {
    name: '${abbreviations.storageHost}${token}'
    location: location
    tags: tags
    sku: storageSku
    containers: ['deployments']
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module payloadStorage 'app/storage.bicep' = {
  name: 'storage-payloads'
  scope: group
  params: {
    name: '${abbreviations.storagePayloads}${token}'
    location: location
    tags: tags
    sku: storageSku
    containers: ['payloads']
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module eventStorage 'app/storage.bicep' = {
  name: 'storage-events'
  scope: group
  params: {
    name: '${abbreviations.storageEvents}${token}'
    location: location
    tags: tags
    sku: storageSku
    containers: ['undelivered']
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module bus 'app/bus.bicep' = {
  name: 'bus'
  scope: group
  params: {
    // Azure does not turn a Standard namespace into a Premium one: the other tier is another namespace.
    name: '${abbreviations.serviceBus}${token}${serviceBusSku == 'Premium' ? '-premium' : ''}'
    location: location
    tags: tags
    sku: serviceBusSku
    capacity: serviceBusCapacity
    publicAccess: !busIsPrivate
    workspaceId: monitoring.outputs.workspaceId
  }
}

module database 'app/database.bicep' = {
  name: 'database'
  scope: group
  params: {
    accountName: '${abbreviations.cosmos}${token}'
    location: location
    tags: tags
    serverless: cosmosServerless
    executionsMaxThroughput: executionsMaxThroughput
    sharedMaxThroughput: sharedMaxThroughput
    zoneRedundant: zoneRedundant
    backupTier: backupTier
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module vault 'app/vault.bicep' = {
  name: 'vault'
  scope: group
  params: {
    name: '${abbreviations.vault}${token}'
    location: location
    tags: tags
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module events 'app/events.bicep' = {
  name: 'events'
  scope: group
  params: {
    name: '${abbreviations.eventGridTopic}${token}'
    location: location
    tags: tags
    busName: bus.outputs.name
    queueName: bus.outputs.eventsQueue
    storageName: eventStorage.outputs.name
    storageContainer: 'undelivered'
    publicAccess: !vnetEnabled
    workspaceId: monitoring.outputs.workspaceId
  }
}

module scheduler 'app/scheduler.bicep' = if (hubInScheduler) {
  name: 'scheduler'
  scope: group
  params: {
    name: '${abbreviations.scheduler}${token}'
    location: location
    tags: tags
    sku: schedulerSku
    ipAllowlist: schedulerIpAllowlist
    hubName: 'weft'
    appPrincipalId: identity.outputs.principalId
    principalId: principalId
    principalType: principalType
  }
}

module network 'app/network.bicep' = if (vnetEnabled) {
  name: 'network'
  scope: group
  params: {
    name: '${abbreviations.network}${token}'
    location: location
    tags: tags
    withBus: busIsPrivate
    hubInStorage: hubInStorage
  }
}

module endpoints 'app/endpoints.bicep' = if (vnetEnabled) {
  name: 'endpoints'
  scope: group
  params: {
    prefix: '${abbreviations.privateEndpoint}${token}'
    location: location
    tags: tags
    subnetId: network!.outputs.endpointsSubnetId
    hostStorageId: hostStorage.outputs.id
    hubInStorage: hubInStorage
    payloadStorageId: payloadStorage.outputs.id
    cosmosId: database.outputs.accountId
    busId: busIsPrivate ? bus.outputs.id : ''
    vaultId: vault.outputs.id
    topicId: events.outputs.topicId
  }
}

module appRoles 'app/rbac.bicep' = {
  name: 'roles-app'
  scope: group
  params: {
    principalId: identity.outputs.principalId
    principalType: 'ServicePrincipal'
    hostStorageName: hostStorage.outputs.name
    hubInStorage: hubInStorage
    payloadStorageName: payloadStorage.outputs.name
    payloadsContainer: 'payloads'
    busName: bus.outputs.name
    queueNames: bus.outputs.queueNames
    cosmosName: database.outputs.accountName
    databaseName: database.outputs.databaseName
    vaultName: vault.outputs.name
    insightsName: monitoring.outputs.insightsName
  }
}

module personRoles 'app/rbac.bicep' = if (!empty(principalId)) {
  name: 'roles-person'
  scope: group
  params: {
    principalId: principalId
    principalType: principalType
    hostStorageName: hostStorage.outputs.name
    hubInStorage: hubInStorage
    payloadStorageName: payloadStorage.outputs.name
    payloadsContainer: 'payloads'
    busName: bus.outputs.name
    queueNames: bus.outputs.queueNames
    cosmosName: database.outputs.accountName
    databaseName: database.outputs.databaseName
    vaultName: vault.outputs.name
    insightsName: monitoring.outputs.insightsName
  }
}

module api 'app/api.bicep' = {
  name: 'api'
  scope: group
  params: {
    name: '${abbreviations.functionApp}${token}'
    planName: '${abbreviations.plan}${token}'
    location: location
    tags: union(tags, { 'azd-service-name': 'api' })
    identityId: identity.outputs.id
    clientId: identity.outputs.clientId
    subnetId: vnetEnabled ? network!.outputs.appSubnetId : ''
    publicAccess: apiPublicAccess
    zoneRedundant: zoneRedundant
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    httpConcurrency: httpConcurrency
    alwaysReadyHttp: alwaysReadyHttp
    alwaysReadyOrchestration: alwaysReadyOrchestration
    siteUpdateStrategy: siteUpdateStrategy
    hostBlobUri: hostStorage.outputs.blobUri
    hostQueueUri: hostStorage.outputs.queueUri
    hostTableUri: hostStorage.outputs.tableUri
    schedulerEndpoint: hubInScheduler ? scheduler!.outputs.endpoint : ''
    deploymentContainer: 'deployments'
    payloadsBlobUri: payloadStorage.outputs.blobUri
    payloadsContainer: 'payloads'
    cosmosEndpoint: database.outputs.endpoint
    databaseName: database.outputs.databaseName
    busHost: bus.outputs.host
    vaultUri: vault.outputs.uri
    insightsConnection: monitoring.outputs.insightsConnection
    authIssuers: issuers
    publishTargets: publishTargets
    egressAllow: egressAllow
    extraSettings: extraSettings
    workspaceId: monitoring.outputs.workspaceId
  }
  // The host reads its storage and the triggers listen as soon as the site is there.
  dependsOn: [appRoles, endpoints]
}

module apiEndpoint 'app/endpoint.bicep' = if (vnetEnabled) {
  name: 'endpoint-api'
  scope: group
  params: {
    name: '${abbreviations.privateEndpoint}${token}-api'
    location: location
    tags: tags
    subnetId: network!.outputs.endpointsSubnetId
    targetId: api.outputs.id
    groupId: 'sites'
    zoneName: 'privatelink.azurewebsites.net'
  }
}

module alerts 'app/alerts.bicep' = {
  name: 'alerts'
  scope: group
  params: {
    actionGroupName: '${abbreviations.actionGroup}${token}'
    location: location
    tags: tags
    emails: alertEmails
    workspaceId: monitoring.outputs.workspaceId
    busId: bus.outputs.id
  }
}

module workbook 'app/workbook.bicep' = {
  name: 'workbook'
  scope: group
  params: {
    location: location
    tags: tags
    workspaceId: monitoring.outputs.workspaceId
  }
}

module budget 'app/budget.bicep' = if (budgetAmount > 0 && !empty(budgetStart)) {
  name: 'budget'
  scope: group
  params: {
    name: '${abbreviations.budget}${token}'
    amount: budgetAmount
    startDate: budgetStart
    emails: alertEmails
    actionGroupId: alerts.outputs.actionGroupId
  }
}

// Under these names the same code runs on an operator's machine, as whoever is signed in.
output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_FUNCTION_NAME string = api.outputs.name
output AZURE_CLIENT_ID string = identity.outputs.clientId
output SERVICE_API_URI string = api.outputs.uri
output WEFT_BACKEND string = 'azure'
output WEFT_AUTH_ISSUERS string = issuers
output Cosmos__accountEndpoint string = database.outputs.endpoint
output COSMOS_DATABASE string = database.outputs.databaseName
output ServiceBus__fullyQualifiedNamespace string = bus.outputs.host
output Payloads__blobServiceUri string = payloadStorage.outputs.blobUri
output PAYLOADS_CONTAINER string = 'payloads'
output KeyVault__vaultUri string = vault.outputs.uri
output LOG_ANALYTICS_WORKSPACE_ID string = monitoring.outputs.workspaceKey
output EVENT_GRID_ENDPOINT string = events.outputs.endpoint
