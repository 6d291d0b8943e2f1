// The account with exactly the containers of orchestrator/adapters/azure/cosmos_containers.py; a test
// compares. Data-plane roles cannot create containers, so every one is here, the leases too.
@minLength(3)
@maxLength(44)
param accountName string
param location string
param tags object
param serverless bool
param executionsMaxThroughput int
param sharedMaxThroughput int
param zoneRedundant bool
@allowed(['Continuous7Days', 'Continuous30Days'])
param backupTier string
param publicAccess bool
param workspaceId string

var databaseName = 'weft'

// ordered: what lists are ordered by, each together with /id as a composite index.
var containers = [
  {
    name: 'executions'
    partition: ['/tenantId', '/executionId']
    included: ['/tenantId/?', '/executionId/?', '/type/?', '/sweepAt/?', '/createdAt/?', '/receivedAt/?']
    excluded: ['/*']
    ordered: ['/sweepAt', '/createdAt', '/receivedAt']
  }
  {
    name: 'catalog'
    partition: ['/tenantId']
    included: ['/*']
    excluded: ['/"_etag"/?']
    ordered: ['/createdAt', '/dueAt']
  }
  {
    name: 'control'
    partition: ['/id']
    included: []
    excluded: ['/*']
    ordered: []
  }
  {
    name: 'visibility'
    partition: ['/tenantId']
    included: ['/*']
    excluded: ['/"_etag"/?']
    ordered: ['/createdAt']
  }
  {
    name: 'audit'
    partition: ['/tenantId']
    included: ['/*']
    excluded: ['/"_etag"/?']
    ordered: ['/createdAt', '/n']
  }
  {
    name: 'leases'
    partition: ['/id']
    included: ['/*']
    excluded: ['/"_etag"/?']
    ordered: []
  }
]

var executionsOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: executionsMaxThroughput } }

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-10-15' = {
  name: accountName
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    disableLocalAuth: true
    disableKeyBasedMetadataWriteAccess: true
    minimalTlsVersion: 'Tls12'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    capabilities: serverless ? [{ name: 'EnableServerless' }] : []
    consistencyPolicy: {
      defaultConsistencyLevel: 'Session'
    }
    locations: [
      {
        locationName: location
        failoverPriority: 0
        isZoneRedundant: zoneRedundant
      }
    ]
    backupPolicy: {
      type: 'Continuous'
      continuousModeProperties: {
        tier: backupTier
      }
    }
  }
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2025-10-15' = {
  parent: account
  name: databaseName
  properties: {
    resource: {
      id: databaseName
    }
    options: serverless ? {} : { autoscaleSettings: { maxThroughput: sharedMaxThroughput } }
  }
}

resource collections 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-10-15' = [
  for container in containers: {
    parent: database
    name: container.name
    properties: {
      resource: {
        id: container.name
        partitionKey: {
          paths: container.partition
          kind: length(container.partition) > 1 ? 'MultiHash' : 'Hash'
          version: 2
        }
        // Nothing expires, except documents that carry ttl themselves.
        defaultTtl: -1
        indexingPolicy: {
          indexingMode: 'consistent'
          automatic: true
          includedPaths: [for path in container.included: { path: path }]
          excludedPaths: [for path in container.excluded: { path: path }]
          compositeIndexes: [
            for path in container.ordered: [
              { path: path, order: 'ascending' }
              { path: '/id', order: 'ascending' }
            ]
          ]
        }
      }
      // The state has throughput of its own: a rebuild of the read model must not slow executions.
      options: container.name == 'executions' ? executionsOptions : {}
    }
  }
]

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: account
  name: 'to-workspace'
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      {
        category: 'ControlPlaneRequests'
        enabled: true
      }
      {
        category: 'PartitionKeyRUConsumption'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'Requests'
        enabled: true
      }
    ]
  }
}

output accountId string = account.id
output accountName string = account.name
output databaseName string = database.name
output endpoint string = account.properties.documentEndpoint
